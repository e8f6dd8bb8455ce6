"""The commands, in groups; `main` says which module has which."""
