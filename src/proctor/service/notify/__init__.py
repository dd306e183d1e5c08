"""What the service sends by itself: alerts, webhooks, exported verdicts."""
