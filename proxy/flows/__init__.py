"""Labels that follow data: fingerprints of what came in, found again in what goes out. Pure, no I/O."""
