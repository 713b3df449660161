"""Who is calling: the token files of agents and operators, and the proxy's certificate authority."""
