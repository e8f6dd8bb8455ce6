"""Names and roles: whom the service lets in, what each may do, and what a viewer is not shown.

Read `roles` first, then `admission`: whom a request comes from. `token_file` reads the file of tokens,
`proxy` the name that a proxy sends; `withheld` says which fields are values. Knows no
request of a web framework. May import what `server` may, and no other room of it.
"""
