"""Messages of the service: alerts, webhooks, exported verdicts."""
