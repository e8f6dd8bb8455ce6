"""Values and records as bytes, and back.

Read `values` first: it turns Python values into bytes, with the types of `tags`, `classes` and
`frames`. `records` hashes a record onto the chain; `sealing` and `chain` compress and encrypt its
payloads with the keys of `keyring`. `schema` and `complaints` check answers. Pure: no I/O. May import
errors and model.
"""
