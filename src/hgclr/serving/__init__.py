"""The web service: a model behind HTTP, with bounded memory, batches across requests, and a page.

The web framework is imported by the modules of this package and by nothing else: ``pip install 'hgclr[serve]'``.
"""
