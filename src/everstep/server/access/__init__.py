"""Who may do what over HTTP: names, roles, tokens, users of a proxy, and what a viewer is not shown.

Read `roles` first, then `admission`: who a request comes from. `token_file` reads the file of tokens;
`withheld` says which fields are values. Knows no request of a web framework, no route and no host.
"""
