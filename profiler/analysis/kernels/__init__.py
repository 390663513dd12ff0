"""How long does each kernel take: its executions, one against the other."""
