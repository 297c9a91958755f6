"""Between text and tokens: chat templates and the codec."""
