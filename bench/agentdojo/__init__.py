"""AgentDojo's tasks and injections, replayed through the gate without a model."""
