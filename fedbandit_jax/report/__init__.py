"""The page: one HTML file, a Markdown summary and every figure of a folder of results."""
