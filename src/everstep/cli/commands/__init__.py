"""The commands, in groups, a module each or for few that belong together; `main` says which has which."""
