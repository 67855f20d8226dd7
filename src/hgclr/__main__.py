"""``python -m hgclr``: the command line."""

from hgclr.cli.app import app

if __name__ == "__main__":
    app(prog_name="hgclr")
