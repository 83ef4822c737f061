"""``python -m roughformer``: the command line."""

from roughformer.cli import main

if __name__ == "__main__":
    main()
