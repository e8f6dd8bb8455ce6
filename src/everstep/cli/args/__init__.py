"""From words on the command line to flows, hosts, runs and inputs. Read `loading` first."""
