"""Messages of the service: alerts and their delivery, exported verdicts."""
