"""Between levels: how they compare, cheap pilots on a real model, and what a simulator that is calibrated to one forecasts."""
