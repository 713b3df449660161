-- Each writer's events in the order of its chain.
CREATE INDEX events_by_writer ON events (writer, seq, event_id);
