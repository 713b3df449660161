"""Local servers: started, watched, and spoken to over stdio."""
