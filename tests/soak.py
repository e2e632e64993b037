"""``make soak``: see ``tests/concurrency/soak.py``."""

from __future__ import annotations

import os
import sys


def main() -> int:
    os.environ["DJANGO_SETTINGS_MODULE"] = "tests.concurrency.fleet_settings"
    os.environ["DS_FLEET_DATABASE"] = "postgresql"
    import django

    django.setup()
    from tests.concurrency.soak import main as soak

    return soak()


if __name__ == "__main__":
    sys.exit(main())
