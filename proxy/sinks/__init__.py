"""Where the trail goes beside the store. The local log feeds each sink at least once; each knows events by id."""
