"""``python -m nestmap``."""

from nestmap.cli import main

if __name__ == "__main__":
    main()
