"""The web service: a model behind HTTP, with bounded memory, batches across requests, and a web page.

Only this package imports the web framework: run ``pip install -c constraints.txt '.[serve]'`` in the checkout of hgclr.
"""
