"""What would vLLM itself decide? Its own code is asked, on a machine without a GPU."""
