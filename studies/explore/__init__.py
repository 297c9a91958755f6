"""The explorer: designs under the mouse, in a browser (`rftlab explore`)."""
