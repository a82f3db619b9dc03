"""Safety: what may reach the arm. Freshness, validity, limits and the smooth stop; no ROS in here."""
