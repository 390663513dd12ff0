"""How long requests take: each pipeline call of a run of many, with its wait in queues."""
