"""What is played on: catalogs of arms, key terms and users, federations drawn from them, and the users who answer."""
