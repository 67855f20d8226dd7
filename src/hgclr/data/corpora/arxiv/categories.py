"""arXiv's categories as a label tree, and the codes that older papers carry instead."""

from __future__ import annotations

from importlib.resources import as_file, files

from hgclr.taxonomy import Taxonomy

__all__ = ["ALIASES", "category_tree"]

ALIASES = {
    # Archives that became categories of others.
    "acc-phys": "physics.acc-ph",
    "adap-org": "nlin.AO",
    "alg-geom": "math.AG",
    "ao-sci": "physics.ao-ph",
    "atom-ph": "physics.atom-ph",
    "bayes-an": "physics.data-an",
    "chao-dyn": "nlin.CD",
    "chem-ph": "physics.chem-ph",
    "cmp-lg": "cs.CL",
    "comp-gas": "nlin.CG",
    "dg-ga": "math.DG",
    "funct-an": "math.FA",
    "mtrl-th": "cond-mat.mtrl-sci",
    "patt-sol": "nlin.PS",
    "plasm-ph": "physics.plasm-ph",
    "q-alg": "math.QA",
    "solv-int": "nlin.SI",
    "supr-con": "cond-mat.supr-con",
    # Categories that stand in two archives under two codes; papers carry both.
    "cs.NA": "math.NA",
    "cs.SY": "eess.SY",
    "math.IT": "cs.IT",
    "math.MP": "math-ph",
    "q-fin.EC": "econ.GN",
    "stat.TH": "math.ST",
}
"""By code that is not in the tree, the one that means the same. Every value is a label of `category_tree`."""


def category_tree() -> Taxonomy:
    """Return arXiv's groups, archives and categories: 161 labels in three levels, under arXiv's own codes and names.

    Only Physics has several archives, of which four have categories below them. The other groups are one archive each
    and go by its code (``cs``), so that their categories are on the second level. Physics, the group, is
    ``grp_physics``, as arXiv calls it, because ``physics`` is the archive.
    """
    with as_file(files("hgclr.data.corpora.arxiv") / "categories.tsv") as path:
        return Taxonomy.read(path, format="table")
