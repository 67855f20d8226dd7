"""Tables 2 to 5 of the paper, and the table of systems: declare rows, run them, sum them up, write them."""
