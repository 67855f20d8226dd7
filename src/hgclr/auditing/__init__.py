"""Label audit: documents whose given labels a model contradicts, where annotation or label tree may be wrong."""

from __future__ import annotations

from hgclr.auditing.auditing import audit
from hgclr.auditing.results import Audit, Finding

__all__ = ["Audit", "Finding", "audit"]
