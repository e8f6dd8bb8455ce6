"""`sqlite:` keeps runs in one file, with artifacts in a folder beside it."""
