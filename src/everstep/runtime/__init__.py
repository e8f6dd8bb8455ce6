"""The only loops: drive one run, commit, renew leases. Calls user code; knows no store by name."""
