"""Explorer of designs in a browser (`rftlab explore`): sliders move, and simulated learning curves follow."""
