"""Where runs are kept: one folder per backend.

Read `ports.store` for the contract and `sqlite.store` for the plainest answer to it. A store keeps rows and
decides nothing: what is legal it asks of `engine`. May import errors, model, ports and those decisions.
"""
