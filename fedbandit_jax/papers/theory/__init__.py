"""The theorems: bounds as functions, and checks that they hold."""
