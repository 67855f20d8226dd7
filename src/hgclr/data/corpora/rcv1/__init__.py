"""RCV1-V2: the Reuters disks, with the topic tree and the training documents of Lewis et al. (2004)."""

from hgclr.data.corpora.rcv1.building import build_rcv1

__all__ = ["build_rcv1"]
