"""Labelling: texts, a label tree and answers by people; a model that learns in the background."""
