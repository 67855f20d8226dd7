"""Commands that only somebody who reruns the paper needs."""
