"""The reference page of the settings of a run, written from the classes that check them."""

from __future__ import annotations

from hgclr.training.settings import Setting, list_settings, written

__all__ = ["settings_page"]

INTRODUCTION = """# Settings of a run

What the file of [`hgclr train`](commands/train.md) can hold, and `--set SECTION.NAME=VALUE` on the command line;
[how to train](../guides/training.md) has an example. [`hgclr settings`](commands/settings.md) lists the same in a
terminal. An unknown name or a value that does not fit is refused before anything else is done. This page is written
from the program when the pages are built."""
METHOD = """## model: the method

Any of these can be set in the section `model` as well. A preset that has another value than `default` is named; see
[Presets](../concepts/hgclr.md#presets)."""
TRAINING = """## training

What has no default here comes from the [recipe](../guides/training.md#recipes)."""
HEADINGS = {"data": "## data", "model": "## model", "method": METHOD, "training": TRAINING}


def settings_page() -> str:
    """Return the page in Markdown."""
    parts = [INTRODUCTION]
    settings = list_settings()
    for section, heading in HEADINGS.items():
        parts += [heading, *(_definition(setting) for setting in settings if setting.section == section)]
    return "\n\n".join(parts) + "\n"


def _definition(setting: Setting) -> str:
    facts = [setting.kind if " | " not in setting.kind else " ".join(f"`{each}`" for each in setting.kind.split(" | "))]
    if setting.required or setting.default is not None:
        facts.append("required" if setting.required else f"default `{written(setting.default)}`")
    facts += [f"{preset} `{written(value)}`" for preset, value in setting.presets.items()]
    return (
        f"`{setting.name.partition('.')[2]}`\n:   {setting.meaning}\n    <span class='facts'>{' · '.join(facts)}</span>"
    )
