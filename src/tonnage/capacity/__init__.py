"""From users to a purchase: cards x parallelism x precision x replicas, each checked by the memory of the plan."""
