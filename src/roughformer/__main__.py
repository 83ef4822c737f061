"""``python -m roughformer``: the command line, as launchers such as torchrun start it."""

from roughformer.cli import main

if __name__ == "__main__":
    main()
