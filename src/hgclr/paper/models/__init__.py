"""The systems that the paper compares, each a model of :mod:`hgclr.models`."""

from huggingface_hub.dataclasses import strict
from transformers import AutoConfig

from hgclr.models.base import HGCLRConfig
from hgclr.paper.settings import BaselineSettings


@strict
class BaselineConfig(BaselineSettings, HGCLRConfig):
    """Configure HiAGM, HTCInfoMax or HiMatch."""

    model_type = "hgclr-baseline"


AutoConfig.register(BaselineConfig.model_type, BaselineConfig)
