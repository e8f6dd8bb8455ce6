"""`python -m everstep` is the same as `everstep`."""

from everstep.cli.main import main

if __name__ == "__main__":
    main()
