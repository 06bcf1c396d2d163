"""The way in: order of arrival, the queue, event times and the guard."""
