"""What leaves the service by itself: alerts, webhooks, exported verdicts."""
