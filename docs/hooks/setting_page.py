"""The reference page of the settings of a run, written from the classes that check them."""

from __future__ import annotations

from hgclr.training.settings import Setting, list_settings, written

__all__ = ["settings_page"]

INTRODUCTION = """# Settings of a run

These settings can be in the run file of [`hgclr train`](commands/train.md), or on the command line as
`--set SECTION.NAME=VALUE`. [Training](../guides/training.md#settings) has an example, and
[`hgclr settings`](commands/settings.md) lists the same in a terminal. hgclr reports an unknown name or a wrong value
before training starts. This page is generated from the program."""
METHOD = """## model: the method

These settings also belong to the section `model`. Values of the presets `paper` and `published` are shown where they
differ from `default`; [HGCLR](../concepts/hgclr.md) explains the presets."""
TRAINING = """## training

If no default is shown, the [recipe](../guides/training.md#recipes) or the preset decides."""
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
