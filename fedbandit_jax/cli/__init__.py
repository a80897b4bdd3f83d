"""The shell command `fedbandit`, one file a command."""
