"""MTranServer's API and those of the plug-ins it serves: routes and the shape of bodies."""
